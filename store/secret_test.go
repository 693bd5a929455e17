package store

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/lifecycle"
)

// A whole life leaves no secret in the clear: not in a column, not in the
// audit, not in the database's files.
func TestNoSecretIsKeptInTheClear(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		password := "correct horse battery"
		must[bool](t)(s.FirstOperator(ctx, start, "ada", password))
		tok := must[muster.Token](t)(s.Login(ctx, start, "", muster.Login{Name: "ada", Password: password}))
		key := must[muster.CreatedKey](t)(s.CreateKey(ctx, start, ada, muster.NewKey{Scope: muster.ScopeFull}))
		c := boxNo(2)
		reply := must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, c.request()))
		must[muster.Registration](t)(s.ApproveCode(ctx, start, ada, reply.ClaimCode))
		st := must[muster.RegisterStatus](t)(s.RegisterStatus(ctx, start, nobody, reply.PollToken))
		open2 := must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, boxNo(3).request()))

		b := boxNo(1)
		awaiting(t, s, b, start)
		must[muster.SetupGrant](t)(s.ApproveSetup(ctx, start, ada, b.uuid, approval(t, s, b, start)))
		var failed kept
		must[muster.TakenBundle](t)(s.TakeBundle(ctx, start, booterCaller, b.uuid, muster.TakeRequest{Epoch: 1, Session: "s1"}, failed.seal))
		if err := s.SetupFailed(ctx, start, booterCaller, b.uuid, muster.SetupOutcome{Epoch: 1, Reason: "rabbitmq=guest:planted-bus-password:10.0.0.1:5672 refused"}); err != nil {
			t.Fatal(err)
		}
		g := must[muster.SetupGrant](t)(s.ApproveSetup(ctx, start, ada, b.uuid, approval(t, s, b, start)))
		var k kept
		must[muster.TakenBundle](t)(s.TakeBundle(ctx, start, booterCaller, b.uuid, muster.TakeRequest{Epoch: g.Epoch, Session: "s1"}, k.seal))
		proof := k.proof(b, g.Epoch)
		log := "muster.bus=guest:planted-bus-password:10.0.0.1:5672\nMUSTER-SETUP-COMPLETE epoch=2 proof=" + proof + "\nok\n"
		if err := s.SetupComplete(ctx, start, booterCaller, b.uuid, muster.SetupOutcome{Epoch: g.Epoch, Proof: proof, Log: log}); err != nil {
			t.Fatal(err)
		}
		must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, c.uuid, lifecycle.Disable))

		secrets := map[string]string{
			"password": password, "token": tok.Token[17:], "key": key.Secret[17:], "agent key": st.APIKey[17:], "setup key": k.APIKey[17:], "failed setup's key": failed.APIKey[17:],
			"poll token": reply.PollToken, "open poll token": open2.PollToken,
			"claim code": strings.ReplaceAll(open2.ClaimCode, "-", ""), "shown claim code": open2.ClaimCode, "proof": proof,
			"root password": "planted-shadow-hash", "bus password": "planted-bus-password", "master key": string(master),
			"console key": string(k.Tickets.Console), "move key": string(k.Tickets.Move), "metadata key": string(k.Tickets.Metadata), "proof key": string(k.ProofKey),
		}
		haystacks := map[string]string{"the tables": dump(t, behind(t, s))}
		if !s.engine.shared() {
			file := sqliteFile(t, s)
			for _, suffix := range []string{"", "-wal"} {
				b, err := os.ReadFile(file + suffix)
				if err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				haystacks["the file"+suffix] = string(b)
			}
		}
		for where, text := range haystacks {
			for name, secret := range secrets {
				for _, spelled := range []string{secret, hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret))} {
					if len(spelled) >= 6 && strings.Contains(text, spelled) {
						t.Errorf("the %s can be read in %s", name, where)
					}
				}
			}
		}
		// The ticket keys are there all the same, for whoever has the master key.
		if got := must[OwnKey](t)(s.TicketKey(ctx, start, ada, b.uuid, "console")).Key; !bytes.Equal(got, k.Tickets.Console) {
			t.Error("the console key does not come back")
		}
		if s.engine.shared() {
			return
		}
		stranger, err := Open(ctx, Options{URL: sqliteFile(t, s), MasterKey: bytes.Repeat([]byte{8}, 32), anyMaster: true})
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Close()
		if _, err := stranger.TicketKey(ctx, start, ada, b.uuid, "console"); err == nil {
			t.Error("another master key opens it")
		}
	})
}

func TestTheSQLiteFileIsPrivate(t *testing.T) {
	s := open(t, sqliteURL(t))
	for _, suffix := range []string{"", "-wal", "-shm"} {
		fi, err := os.Stat(sqliteFile(t, s) + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s may be read by others: %v", fi.Name(), fi.Mode())
		}
	}
}
