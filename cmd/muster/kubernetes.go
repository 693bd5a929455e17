package main

import (
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"muster.internal/kubernetes"
)

// kubernetesEvery is how often claims, and the pods of what drains, are looked at.
const kubernetesEvery = 5 * time.Second

func (a *app) claimKubernetes() *cobra.Command {
	var file, context, holder, label string
	lease := lifetime(600)
	c := &cobra.Command{
		Use:   "kubernetes --kubeconfig FILE --holder HOLDER",
		Short: "Hold claims for the nodes of a Kubernetes cluster, and drain them",
		Long: `Hold claims for the nodes of a Kubernetes cluster, and drain them, until
interrupted. Run it beside the cluster, as a service.

Each machine of the fleet that is a node of the cluster is claimed: by the label
of --node-label (a node id, a machine's UUID or a host name), or else by the UUID
of its machine, or else by its host name. When its claim is to drain, the node is
cordoned, and its pods are evicted, as their disruption budgets allow; pods of
DaemonSets, mirror pods and those that have ended stay. The claim is released when
none is left. When the removal is taken back, the node is uncordoned, unless it
was somebody else who cordoned it. Pods without a controller, and what they keep
in emptyDir volumes, are gone when they are evicted.

HOLDER names this cluster, and no other may have the same: claims of this name
whose nodes are not in the cluster are released. After an interruption the claims
hold until their leases are over; started again in time, it goes on with them.

The user in FILE has a token or a client certificate, and may: list, watch and
patch nodes; list pods; create pods/eviction. The control plane is asked with
MUSTER_KEY, a key of scope full.`,
		Example: `  muster claim kubernetes --kubeconfig /etc/muster/prod.kubeconfig --holder kubernetes/prod
  muster claim kubernetes --kubeconfig ~/.kube/config --context lab --holder kubernetes/lab --for 2m`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			if file == "" || holder == "" {
				return usagef("--kubeconfig and --holder are needed: how to come before the cluster, and its name here")
			}
			k, err := kubernetes.Open(file, context)
			if err != nil {
				return err
			}
			var lines slog.Handler = slog.NewTextHandler(a.stderr, nil)
			if a.output == "json" {
				lines = slog.NewJSONHandler(a.stderr, nil)
			}
			agent := kubernetes.Agent{Cluster: k, Fleet: f, Holder: holder, Label: label, Lease: time.Duration(lease) * time.Second, Every: kubernetesEvery, Log: slog.New(lines)}
			return agent.Run(c.Context())
		}),
	}
	c.Flags().StringVar(&file, "kubeconfig", "", "file that says where the cluster is, and as whom to come (needed)")
	c.Flags().StringVar(&context, "context", "", "which context of it (default its current one)")
	c.Flags().StringVar(&holder, "holder", "", "what this cluster is called in claims, like kubernetes/prod (needed)")
	c.Flags().StringVar(&label, "node-label", "muster.internal/node", "label of a Kubernetes node that names its machine")
	c.Flags().Var(&lease, "for", "how long a claim holds without being renewed, at most 24h")
	return c
}
