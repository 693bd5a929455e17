// Package provider makes and ends, at the services that nodes use, what each
// node may use there. It keeps nothing: who may use what is in the store.
//
// It must never put a password into a statement, an error or a log: what a
// service logs, others read.
package provider

import (
	"context"
	"fmt"

	"muster.internal"
)

// A Role is one node's own, at one provider.
type Role struct {
	Name, MemberOf, Password string
}

// A Provider makes roles and ends them. Both can be repeated: what is so already
// is left as it is. Several control planes may be at one role at once.
type Provider interface {
	// Make asks still once nobody else can end the role before it is made. An error
	// of that leaves everything as it was.
	Make(ctx context.Context, r Role, still func(context.Context) error) error
	// End returns once the role can do nothing any more, in connections that
	// stood before neither.
	End(ctx context.Context, r Role) error
}

// At is the provider of a kind at a URL with its credential.
func At(kind muster.ProviderKind, url string) (Provider, error) {
	if kind == muster.ProviderPostgreSQL {
		return postgresql{url}, nil
	}
	return nil, fmt.Errorf("this version knows no providers of kind %q", kind)
}
