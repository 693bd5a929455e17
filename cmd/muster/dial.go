package main

import "muster.internal/client"

// dial makes the client that speaks to a control plane. It sends nothing.
func dial(c connection) (fleet, error) {
	f, err := client.New(c.url, c.token, client.Trust{CA: c.ca, Fingerprint: c.fingerprint})
	if err != nil {
		return nil, usagef("%v", err)
	}
	return f, nil
}
