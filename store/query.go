package store

// A query is one statement, in one text for both engines: $n for arguments,
// portable types only, no $ in a literal. A column whose index leaves empty
// values out must be compared with the empty string too: otherwise no engine
// knows that the index holds what is asked for.
type query struct{ name, text string }

// queries is every statement there is, so that a test can prepare each on both
// engines.
var queries []*query

// define runs while the package's variables are initialised, and never after.
func define(name, text string) *query {
	q := &query{name, text}
	queries = append(queries, q)
	return q
}
