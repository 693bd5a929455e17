// Command musterd is the control plane.
//
// It owns flags, environment, signals and exit codes; everything else is in
// package control. It must never print a secret but where a command is asked for it.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"muster.internal"
	"muster.internal/control"
)

// Exit codes.
const (
	failure = 1 // it could not do what was asked, and says why
	usage   = 2 // the command line is wrong
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// A failed error came from the work, not from the command line.
type failed struct{ error }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := root(stdout, stderr)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "musterd:", err)
	if _, ok := err.(failed); ok {
		return failure
	}
	fmt.Fprintln(stderr, "musterd: hint: musterd --help")
	return usage
}

// work marks the errors of a command's work.
func work(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := f(cmd.Context(), args); err != nil {
			return failed{err}
		}
		return nil
	}
}

func root(stdout, stderr io.Writer) *cobra.Command {
	var cfg control.Config
	var ips []string
	verbose := false
	cmd := &cobra.Command{
		Use:   "musterd",
		Short: "the control plane of muster",
		Long: "musterd keeps what is known of the machines of a fleet, and answers operators, booters and hosts over HTTPS.\n" +
			"At its first start it makes a CA, a master key and the operator \"admin\". The password is in DIR/first-login, a\n" +
			"file for its owner alone: with that, \"muster\" on this machine logs in by itself, and whoever is to log in from\n" +
			"elsewhere finds the password there. It goes when the password is changed.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: work(func(ctx context.Context, _ []string) error {
			cfg.Names = append(cfg.Names, ips...)
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			cfg.Log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
			return control.Run(ctx, cfg)
		}),
	}
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	all := cmd.PersistentFlags()
	all.StringVar(&cfg.Dir, "dir", control.DefaultDir(), "directory of its state")
	all.StringVar(&cfg.Store, "store", os.Getenv("MUSTER_STORE"), "postgres://… or the path of a SQLite file (default DIR/muster.db; environment MUSTER_STORE)")
	own := cmd.Flags()
	own.StringVar(&cfg.Listen, "listen", "127.0.0.1:8443", "address to serve HTTPS on")
	own.StringVar(&cfg.Advertise, "advertise", "", "https://HOST:PORT by which machines reach it (default: made from --listen and --name)")
	own.StringArrayVar(&cfg.Names, "name", nil, "name or address to put into the server's certificate; may be repeated")
	own.StringArrayVar(&ips, "ip", nil, "the same as --name, for an address")
	own.BoolVarP(&verbose, "verbose", "v", false, "log every request")
	cmd.AddCommand(version(stdout), ca(&cfg, stdout), resetPassword(&cfg, stdout), key(&cfg, stdout), adoptMasterKey(&cfg))
	return cmd
}

func version(stdout io.Writer) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "print the version", Args: cobra.NoArgs,
		RunE: work(func(context.Context, []string) error {
			_, err := fmt.Fprintf(stdout, "musterd %s (capability %d)\n", muster.Build, muster.Capability)
			return err
		})}
}

func ca(cfg *control.Config, stdout io.Writer) *cobra.Command {
	return &cobra.Command{Use: "ca", Short: "print the CA's certificate and fingerprint", Args: cobra.NoArgs,
		RunE: work(func(context.Context, []string) error {
			pem, fingerprint, err := control.ReadCA(cfg.Dir)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(stdout, "%ssha256:%s\n", pem, fingerprint)
			return err
		})}
}

func resetPassword(cfg *control.Config, stdout io.Writer) *cobra.Command {
	return &cobra.Command{Use: "reset-password NAME", Short: "give an operator a new password, printed once",
		Long: "It works on the store itself, so that whoever owns the host can always get in. The operator's tokens end.",
		Args: cobra.ExactArgs(1),
		RunE: work(func(ctx context.Context, args []string) error {
			password, err := control.ResetPassword(ctx, *cfg, args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(stdout, password)
			return err
		})}
}

func key(cfg *control.Config, stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{Use: "key", Short: "API keys, made on the store itself", Args: cobra.NoArgs}
	var n muster.NewKey
	create := &cobra.Command{Use: "create --scope SCOPE", Short: "make an API key and print its secret once",
		Long: "It works on the store itself: this is how a booter on the same host gets its keys. It is audited.",
		Args: cobra.NoArgs,
		RunE: work(func(ctx context.Context, _ []string) error {
			k, err := control.CreateKey(ctx, *cfg, n)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(stdout, k.Secret)
			return err
		})}
	create.Flags().StringVar((*string)(&n.Scope), "scope", "", "full, read_only, audit_only, booter or ur_enroll")
	create.Flags().StringVar(&n.Comment, "comment", "", "what it is for")
	create.Flags().IntVar(&n.ExpiresIn, "expires", 0, "seconds until it expires; 0: never")
	if err := create.MarkFlagRequired("scope"); err != nil {
		panic(err) // the flag is defined above
	}
	cmd.AddCommand(create)
	return cmd
}

func adoptMasterKey(cfg *control.Config) *cobra.Command {
	return &cobra.Command{Use: "adopt-master-key", Short: "go on with another master key when the store's own is lost",
		Long: "A store is opened only with the master.key that it was made with. When that file is lost, this takes the one\n" +
			"in --dir, or makes it. Claim codes that wait for approval and ticket keys that are kept are lost. It is audited.",
		Args: cobra.NoArgs,
		RunE: work(func(ctx context.Context, _ []string) error { return control.AdoptMasterKey(ctx, *cfg) })}
}
