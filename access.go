package muster

import "time"

// Role is what an operator may do.
type Role string

const (
	Admin  Role = "admin"
	Viewer Role = "viewer"
)

// Scope is what an API key may do.
type Scope string

const (
	ScopeFull      Scope = "full"
	ScopeReadOnly  Scope = "read_only"
	ScopeAuditOnly Scope = "audit_only"
	ScopeAgent     Scope = "agent"
	ScopeBooter    Scope = "booter"
	ScopeURenroll  Scope = "ur_enroll"
)

// Scopes lists every scope.
var Scopes = []Scope{ScopeFull, ScopeReadOnly, ScopeAuditOnly, ScopeAgent, ScopeBooter, ScopeURenroll}

// A Caller is who asks: an operator in person (Operator and Role), a key
// (KeyID and Scope), a node (NodeID, with the agent key that its certificate
// was signed for), or nobody known.
type Caller struct {
	Operator string
	Role     Role
	KeyID    string
	Scope    Scope
	// ServerUUID is the machine that an agent key is bound to.
	ServerUUID string
	// NodeID is set for who comes with a node's certificate. Lapsed says that its
	// time is over: it is good for a new one, and for nothing else.
	NodeID string
	Lapsed bool
	Source string // network address, for limits and audit
}

// Machine tells a machine or a booter from who acts for people.
func (c Caller) Machine() bool {
	return c.NodeID != "" || c.Scope == ScopeAgent || c.Scope == ScopeBooter || c.Scope == ScopeURenroll
}

// String is how the audit names a caller.
func (c Caller) String() string {
	switch {
	case c == Clock:
		return "clock"
	case c.Operator != "":
		return "operator:" + c.Operator
	case c.NodeID != "":
		return "node:" + c.NodeID
	case c.KeyID != "":
		return "key:" + c.KeyID
	}
	return "anonymous"
}

// Clock is the caller of what happens by itself.
var Clock = Caller{KeyID: "clock"}

// An Action is something that is allowed or not, depending on the caller.
type Action string

const (
	ActHealth              Action = "health"
	ActLogin               Action = "login"
	ActRegister            Action = "agent_register"
	ActRefresh             Action = "agent_refresh"
	ActHeartbeat           Action = "agent_heartbeat"
	ActRegistrationRead    Action = "registration_read"
	ActRegistrationApprove Action = "registration_approve"
	ActRegistrationChange  Action = "registration_change" // disable, factory reset, delete
	ActSetupPlan           Action = "setup_plan"
	ActSetupApprove        Action = "setup_approve"
	ActBootRead            Action = "boot_read"
	ActBootChange          Action = "boot_change"
	ActPolicyRead          Action = "policy_read"
	ActPolicyChange        Action = "policy_change"
	ActMachineRead         Action = "machine_read"
	ActMachineChange       Action = "machine_change" // who is who, and what is no evidence
	ActNodeRead            Action = "node_read"
	ActNodeChange          Action = "node_change" // policy of nodes and disks
	ActExpunge             Action = "expunge"     // and readmit
	ActRootPassword        Action = "root_password"
	ActTicketIssue         Action = "ticket_issue"
	ActDoorRead            Action = "door_read" // windows and enrolment tokens
	ActDoorChange          Action = "door_change"
	ActImageRead           Action = "image_read"
	ActImageChange         Action = "image_change"
	ActKeyRead             Action = "key_read"
	ActKeyManage           Action = "key_manage"
	ActOperatorManage      Action = "operator_manage"
	ActAuditRead           Action = "audit_read"
	ActBooterFeed          Action = "booter_feed" // feed, sightings, status, images
	ActBooterInstall       Action = "booter_install"
	ActBooterRemove        Action = "booter_remove"
	ActAnnounce            Action = "announce"
	ActPasswordChange      Action = "password_change" // one's own
	ActDeclare             Action = "declare"         // what a node is told to be
	ActClaim               Action = "claim"           // to make, renew and release a claim of one's own
	ActClaimBreak          Action = "claim_break"     // another's
	ActProviderManage      Action = "provider_manage"
	ActPlanRead            Action = "plan_read"   // modules, blueprints, placements
	ActPlanChange          Action = "plan_change" // modules, the target, whether there is planning
	ActLink                Action = "link"        // a node's own
	ActLinkCertificate     Action = "link_certificate"
)

// access is the whole table: who may do what. A person in the role, a key of
// the scope, or a node by its certificate, which has lapsed or has not;
// "anonymous" means anybody.
var access = map[Action]struct {
	anonymous    bool
	roles        []Role
	scopes       []Scope
	node, lapsed bool
}{
	ActHealth:              {anonymous: true},
	ActLogin:               {anonymous: true},
	ActRegister:            {anonymous: true},
	ActRefresh:             {scopes: []Scope{ScopeAgent}},
	ActHeartbeat:           {scopes: []Scope{ScopeAgent}},
	ActRegistrationRead:    {roles: []Role{Admin, Viewer}, scopes: []Scope{ScopeFull, ScopeReadOnly}},
	ActRegistrationApprove: {roles: []Role{Admin}, scopes: []Scope{ScopeFull}},
	ActRegistrationChange:  {roles: []Role{Admin}, scopes: []Scope{ScopeFull}},
	ActSetupPlan:           {roles: []Role{Admin, Viewer}, scopes: []Scope{ScopeFull, ScopeReadOnly}},
	ActSetupApprove:        {roles: []Role{Admin}},
	ActBootRead:            {roles: []Role{Admin, Viewer}, scopes: []Scope{ScopeFull, ScopeReadOnly}},
	ActBootChange:          {roles: []Role{Admin}, scopes: []Scope{ScopeFull}},
	ActPolicyRead:          {roles: []Role{Admin, Viewer}, scopes: []Scope{ScopeFull, ScopeReadOnly}},
	ActPolicyChange:        {roles: []Role{Admin}, scopes: []Scope{ScopeFull}},
	ActMachineRead:         {roles: []Role{Admin, Viewer}, scopes: []Scope{ScopeFull, ScopeReadOnly}},
	ActMachineChange:       {roles: []Role{Admin}, scopes: []Scope{ScopeFull}},
	ActNodeRead:            {roles: []Role{Admin, Viewer}, scopes: []Scope{ScopeFull, ScopeReadOnly}},
	ActNodeChange:          {roles: []Role{Admin}, scopes: []Scope{ScopeFull}},
	ActExpunge:             {roles: []Role{Admin}},
	ActRootPassword:        {roles: []Role{Admin}},
	ActTicketIssue:         {roles: []Role{Admin}, scopes: []Scope{ScopeFull}},
	ActDoorRead:            {roles: []Role{Admin, Viewer}, scopes: []Scope{ScopeFull, ScopeReadOnly}},
	ActDoorChange:          {roles: []Role{Admin}},
	ActImageRead:           {roles: []Role{Admin, Viewer}, scopes: []Scope{ScopeFull, ScopeReadOnly}},
	ActImageChange:         {roles: []Role{Admin}, scopes: []Scope{ScopeFull}},
	ActKeyRead:             {roles: []Role{Admin, Viewer}, scopes: []Scope{ScopeFull, ScopeReadOnly}},
	ActKeyManage:           {roles: []Role{Admin}},
	ActOperatorManage:      {roles: []Role{Admin}},
	ActAuditRead:           {roles: []Role{Admin, Viewer}, scopes: []Scope{ScopeFull, ScopeAuditOnly}},
	ActBooterFeed:          {scopes: []Scope{ScopeBooter}},
	ActBooterInstall:       {scopes: []Scope{ScopeBooter}},
	ActBooterRemove:        {roles: []Role{Admin}},
	ActAnnounce:            {scopes: []Scope{ScopeURenroll}},
	ActPasswordChange:      {roles: []Role{Admin, Viewer}},
	ActDeclare:             {roles: []Role{Admin}, scopes: []Scope{ScopeFull}},
	ActClaim:               {roles: []Role{Admin}, scopes: []Scope{ScopeFull}},
	ActClaimBreak:          {roles: []Role{Admin}},
	ActProviderManage:      {roles: []Role{Admin}},
	ActPlanRead:            {roles: []Role{Admin, Viewer}, scopes: []Scope{ScopeFull, ScopeReadOnly}},
	ActPlanChange:          {roles: []Role{Admin}, scopes: []Scope{ScopeFull}},
	ActLink:                {node: true},
	ActLinkCertificate:     {scopes: []Scope{ScopeAgent}, node: true, lapsed: true},
}

// May tells whether c may do a. An action that is not in the table is denied
// to everybody.
func (c Caller) May(a Action) bool {
	row := access[a]
	if row.anonymous {
		return true
	}
	if c.Operator != "" {
		for _, r := range row.roles {
			if r == c.Role {
				return true
			}
		}
		return false
	}
	if c.NodeID != "" {
		return row.node && (row.lapsed || !c.Lapsed)
	}
	for _, s := range row.scopes {
		if c.KeyID != "" && s == c.Scope && (row.lapsed || !c.Lapsed) {
			return true
		}
	}
	return false
}

// Actions lists the table's actions, for those who document or test it.
func Actions() []Action {
	as := make([]Action, 0, len(access))
	for a := range access {
		as = append(as, a)
	}
	return as
}

// An APIKey is a key as it is listed: without its secret.
type APIKey struct {
	ID         string     `json:"id"`
	Scope      Scope      `json:"scope"`
	Comment    string     `json:"comment,omitempty"`
	ServerUUID string     `json:"server_uuid,omitempty"` // an agent key's machine
	CreatedAt  time.Time  `json:"created_at"`
	CreatedBy  string     `json:"created_by"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	LastUsed   *time.Time `json:"last_used,omitempty"`
	RotatedAt  *time.Time `json:"rotated_at,omitempty"`
	OldUntil   *time.Time `json:"old_secret_until,omitempty"` // the secret before the last rotation is good until then
}

// NewKey asks for a key. Agent keys are made by approvals alone.
type NewKey struct {
	Scope     Scope  `json:"scope"`
	Comment   string `json:"comment,omitempty"`
	ExpiresIn int    `json:"expires_in_seconds,omitempty"` // 0: never
}

// A CreatedKey shows the secret, once.
type CreatedKey struct {
	APIKey
	Secret string `json:"secret"`
}

// A Login exchanges a password for an operator's token.
type Login struct {
	Name     string `json:"name"`
	Password string `json:"password"`
}

// A Token speaks for an operator until it expires.
type Token struct {
	Token     string    `json:"token"`
	Operator  string    `json:"operator"`
	Role      Role      `json:"role"`
	ExpiresAt time.Time `json:"expires_at"`
}

// An Operator is a named person.
type Operator struct {
	Name      string     `json:"name"`
	Role      Role       `json:"role"`
	CreatedAt time.Time  `json:"created_at"`
	LastLogin *time.Time `json:"last_login,omitempty"`
}

// An OperatorChange leaves alone what is empty.
type OperatorChange struct {
	Role     Role   `json:"role,omitempty"`
	Password string `json:"password,omitempty"`
}

// A PasswordChange proves that who changes the password knew the old one.
type PasswordChange struct {
	Old string `json:"old"`
	New string `json:"new"`
}

// A NewOperator names a person and sets the first password.
type NewOperator struct {
	Name     string `json:"name"`
	Role     Role   `json:"role"`
	Password string `json:"password"`
}
