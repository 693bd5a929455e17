package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	muster "muster.internal"
)

func (a *app) versionCmd() *cobra.Command {
	var client bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this program and of the control plane",
		Example: `  muster version
  muster version --client`,
		Args: names(),
		RunE: func(c *cobra.Command, _ []string) error {
			v := struct {
				Client string          `json:"client"`
				Server *muster.Version `json:"server,omitempty"`
			}{Client: muster.Build}
			var asked error
			if !client {
				conn, err := a.connection()
				if err == nil {
					v.Server, err = a.serverVersion(c, conn)
				}
				asked = err
			}
			if err := a.show(v, func(w io.Writer) {
				fmt.Fprintf(w, "muster  %s (capability %d)\n", v.Client, muster.Capability)
				if v.Server != nil {
					fmt.Fprintf(w, "musterd %s (capability %d) at %s\n", said(v.Server.Version), v.Server.Capability, said(v.Server.URL))
				}
			}); err != nil {
				return err
			}
			return asked
		},
	}
	c.Flags().BoolVar(&client, "client", false, "ask no control plane")
	return c
}

func (a *app) serverVersion(c *cobra.Command, conn connection) (*muster.Version, error) {
	f, err := a.dial(conn)
	if err != nil {
		return nil, err
	}
	v, err := f.Version(c.Context())
	return &v, err
}
