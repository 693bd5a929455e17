// Package ticket makes and checks the short-lived tickets by which somebody
// proves to a machine that the control plane sent them: HS256 tokens (RFC 7519,
// RFC 7515) under one of the machine's three ticket keys.
//
// It must never read a clock: the time is an argument.
package ticket

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"muster.internal"
)

// AtMost is how long a ticket of each kind may live.
var AtMost = map[muster.TicketKind]time.Duration{
	muster.TicketConsole:  time.Minute,
	muster.TicketMetadata: 6 * time.Hour,
	muster.TicketMove:     10 * time.Minute,
}

// Mint makes a ticket for one machine. A key that is not 32 bytes is an error.
func Mint(key []byte, kind muster.TicketKind, serverUUID, holder string, now time.Time, life time.Duration) (string, error) {
	if len(key) != 32 {
		return "", fmt.Errorf("the %s key of machine %s is not 32 bytes", kind, serverUUID)
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Issuer:    "muster",
		Audience:  jwt.ClaimStrings{audience(kind, serverUUID)},
		Subject:   holder,
		IssuedAt:  jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(now.Add(life)),
	}).SignedString(key)
}

// Verify tells who holds a ticket, and until when. The error says what is
// wrong with it, and never quotes it.
func Verify(key []byte, kind muster.TicketKind, serverUUID, token string, now time.Time) (holder string, until time.Time, err error) {
	var c jwt.RegisteredClaims
	_, err = jwt.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return key, nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired(), jwt.WithIssuer("muster"),
		jwt.WithTimeFunc(func() time.Time { return now }), jwt.WithIssuedAt(), jwt.WithLeeway(30*time.Second))
	switch {
	case len(key) != 32 || errors.Is(err, jwt.ErrTokenSignatureInvalid) || errors.Is(err, jwt.ErrTokenUnverifiable):
		return "", time.Time{}, fmt.Errorf("the ticket was not made with this machine's %s key", kind)
	case errors.Is(err, jwt.ErrTokenExpired):
		return "", time.Time{}, fmt.Errorf("the ticket expired at %s", c.ExpiresAt.UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return "", time.Time{}, fmt.Errorf("the ticket was made at %s, which is still to come: compare the clocks", c.IssuedAt.UTC().Format(time.RFC3339))
	case err != nil:
		return "", time.Time{}, errors.New("this is not a ticket")
	case !slices.Contains(c.Audience, audience(kind, serverUUID)):
		return "", time.Time{}, fmt.Errorf("the ticket is not a %s ticket for machine %s", kind, serverUUID)
	}
	return c.Subject, c.ExpiresAt.UTC(), nil
}

func audience(kind muster.TicketKind, serverUUID string) string {
	return string(kind) + ":" + serverUUID
}
