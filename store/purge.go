package store

import "time"

// doorKeep is how long a token, a window or a claim is shown after its end. What it did
// stays in the audit.
const doorKeep = 30 * 24 * time.Hour

var (
	tokensDue = define("clock/tokens", `
SELECT id FROM enrolment_tokens WHERE coalesce(used_at, revoked_at, expires_at) <= $1 ORDER BY id LIMIT 5000`)
	dropToken = define("enrolment-tokens/drop", `
DELETE FROM enrolment_tokens WHERE id = $1 AND coalesce(used_at, revoked_at, expires_at) <= $2`)
	windowsOld = define("clock/windows-old", `SELECT kind FROM windows WHERE ended <> '' AND ended_at <= $1 ORDER BY kind`)
	dropWindow = define("windows/drop", `DELETE FROM windows WHERE kind = $1 AND ended <> '' AND ended_at <= $2`)
)

func (t *tx) forgetToken(id string) (bool, error) { return t.forgetDoor(dropToken, id) }

func (t *tx) forgetWindow(kind string) (bool, error) { return t.forgetDoor(dropWindow, kind) }

// forgetDoor looks at the time again: another process may have opened the
// window anew.
func (t *tx) forgetDoor(drop *query, key string) (bool, error) {
	n, err := t.exec(drop, key, micro(t.now.Add(-doorKeep)))
	return n > 0, err
}
