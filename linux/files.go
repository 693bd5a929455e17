package linux

import (
	"muster.internal/credential"
	"muster.internal/setup"
)

// WriteCredential stores the credential on the pool.
func (m *Machine) WriteCredential(c setup.Credential) error {
	return credential.Store(m.credentialPath(), c)
}

// ReadCredential reads it back.
func (m *Machine) ReadCredential() (setup.Credential, error) {
	return credential.Load(m.credentialPath())
}
