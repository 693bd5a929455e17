package control_test

import (
	"context"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/lifecycle"
)

// TestOperatorEvents: whatever the rows let an operator say, the API hears, and
// it hears nothing else.
func TestOperatorEvents(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "")
	key := must(p, func(ctx context.Context) (muster.CreatedKey, error) {
		return p.admin.CreateKey(ctx, muster.NewKey{Scope: muster.ScopeFull})
	}).Secret
	const nobody, nic = "4c4c4544-0000-4000-8000-00000000dead", "52:54:00:77:de:ad"
	for _, c := range []struct {
		on   lifecycle.Subject
		path string
		own  map[string][3]string // verbs that are not the last segment of a POST: method, path, body
	}{
		{lifecycle.Registrations, "/v1/registrations/" + nobody, map[string][3]string{
			"approve":       {"POST", "/v1/claim-codes/approve", `{"code":"000-000"}`},
			"approve-setup": {"POST", "/v1/registrations/" + nobody + "/approve-setup", `{"plan":"","confirm":""}`},
			"delete":        {"DELETE", "/v1/registrations/" + nobody, ""}}},
		{lifecycle.BootRecords, "/v1/boot-records/" + nic, map[string][3]string{
			"set": {"PATCH", "/v1/boot-records/" + nic, `{"mode":"normal"}`}}},
	} {
		verbs := map[string]bool{}
		for _, i := range lifecycle.Help(c.on) {
			verbs[i.Verb] = true
			ask, own := c.own[i.Verb]
			if !own {
				ask = [3]string{"POST", c.path + "/" + i.Verb, ""}
			}
			status, problem := p.raw(ask[0], ask[1], key, ask[2])
			if status == 405 || strings.Contains(problem.Detail, "has no event") || strings.Contains(problem.Detail, "there is nothing at") {
				t.Errorf("%s %s: %d %s", ask[0], ask[1], status, problem.Detail)
			}
		}
		for _, i := range lifecycle.Events() {
			verb := strings.ReplaceAll(string(i.Event), "_", "-")
			if i.Subject == c.on && !verbs[verb] {
				if status, problem := p.raw("POST", c.path+"/"+verb, key, ""); status != 404 || !strings.Contains(problem.Detail, "has no event") {
					t.Errorf("nobody may say %s, and it is answered with %d %s", verb, status, problem.Detail)
				}
			}
		}
	}
}
