package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"muster.internal/image"
)

// loaders fetches boot loaders for a Debian whose own package ipxe lacks some.
func loaders() *cobra.Command {
	var o image.LoaderOptions
	c := &cobra.Command{
		Use:   "loaders DIR",
		Short: "Fetch boot loaders for every kind of firmware, arm64 among them, into a directory",
		Long: `Debian 12's package ipxe has no loader for arm64; Debian 13's has. This fetches
that package from the mirror that this system's apt uses, takes the loaders out
of it and installs nothing. The package is the one that muster is tested with,
checked against its SHA-256; when the mirror has only a newer one, that one is
taken, checked against Debian's signed index. On Debian 13 and later the package
ipxe is enough.`,
		Example: `  muster-booter loaders /var/lib/muster-booter/ipxe
  muster-booter --ipxe /var/lib/muster-booter/ipxe …`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			o.Dir, o.Progress = args[0], c.ErrOrStderr()
			if _, err := image.FetchLoaders(c.Context(), o); err != nil {
				return fmt.Errorf("fetching boot loaders: %w", err)
			}
			fmt.Fprintf(c.OutOrStdout(), "start muster-booter with --ipxe %s\n", o.Dir)
			return nil
		},
	}
	c.Flags().StringVar(&o.Cache, "cache", "", "`DIRECTORY` where downloads are kept (default: the user's cache directory)")
	return c
}
