package muster

import (
	"context"
	"fmt"
	"regexp"
	"time"
)

// Grants is what nodes may use outside of the control plane. A grant is a
// credential of one node at a provider, so that ending it there cuts off a node
// that nobody can reach any more.
type Grants interface {
	// AddProvider keeps where grants are made, with the credential to make them.
	AddProvider(ctx context.Context, n NewProvider) (Provider, error)
	Providers(ctx context.Context) ([]Provider, error)
	// RemoveProvider is refused while a grant stands there.
	RemoveProvider(ctx context.Context, name string) error
	// GrantNode makes a credential for a node. It is delivered with the node's
	// declaration, to templates of secret files.
	GrantNode(ctx context.Context, nodeID string, n NewGrant) (Grant, error)
	// NodeGrants are all that a node has and had, its agent key and link first.
	NodeGrants(ctx context.Context, nodeID string) ([]Grant, error)
	// RevokeGrant ends one. It is over at the provider when it is revoked there.
	RevokeGrant(ctx context.Context, nodeID, provider string) (Grant, error)
}

// ProviderKind is what a provider is.
type ProviderKind string

const (
	ProviderPostgreSQL ProviderKind = "postgresql"
	// A node's own: they are made and end with its registration.
	ProviderAPIKey ProviderKind = "api_key"
	ProviderLink   ProviderKind = "link"
)

// A Provider is where grants are made.
type Provider struct {
	Name    string       `json:"name"`
	Kind    ProviderKind `json:"kind"`
	Address string       `json:"address"` // host:port/database, without the credential
	AddedAt time.Time    `json:"added_at"`
	AddedBy string       `json:"added_by"`
}

// A NewProvider has a URL with a credential that may make roles:
// postgres://user:password@host:port/database.
type NewProvider struct {
	Name string       `json:"name"`
	Kind ProviderKind `json:"kind"`
	URL  string       `json:"url"`
}

// GrantState is how far a grant is.
type GrantState string

const (
	GrantWanted   GrantState = "wanted" // not made at the provider yet
	GrantLive     GrantState = "live"
	GrantRevoking GrantState = "revoking" // to be ended at the provider
	GrantRevoked  GrantState = "revoked"  // ended there
)

// A Grant is what one node may use at one provider.
type Grant struct {
	NodeID   string       `json:"node_id"`
	Provider string       `json:"provider"`
	Kind     ProviderKind `json:"kind"`
	// Name is the role of the node, or the id of its key. MemberOf is the role
	// from which it has its rights.
	Name      string     `json:"name"`
	MemberOf  string     `json:"member_of,omitempty"`
	State     GrantState `json:"state"`
	MadeAt    time.Time  `json:"made_at"`
	MadeBy    string     `json:"made_by,omitempty"`
	ChangedAt time.Time  `json:"changed_at"`
	// Tries failed in a row, the last with Error; AgainAt is when the next is due.
	Tries   int        `json:"tries,omitempty"`
	Error   string     `json:"error,omitempty"`
	AgainAt *time.Time `json:"again_at,omitempty"`
}

// A NewGrant names the provider and the role there whose rights the node gets.
type NewGrant struct {
	Provider string `json:"provider"`
	MemberOf string `json:"member_of"`
}

var providerName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,30}$`)

// Check tells whether the name can be a provider's: templates use it.
func (n NewProvider) Check() error {
	switch {
	case !providerName.MatchString(n.Name):
		return Invalid("name", "%.40q cannot be a provider's name: small letters, digits and underlines, at most 31, a letter first", n.Name)
	case n.Kind != ProviderPostgreSQL:
		return Invalid("kind", "%.40q is no kind of provider that grants are made at: postgresql", n.Kind)
	}
	return nil
}

// GrantValue is the name by which a template has a part of a grant: user,
// password, host, port or database.
func GrantValue(provider, part string) string { return fmt.Sprintf("grant_%s_%s", provider, part) }
