// Package gateway stands between many hosts and ClickHouse, and puts together what
// they send: a server pays for an insert, whatever is in it, so a thousand hosts with
// an insert each need more CPU than the same rows of ten hosts.
//
// In: what hosts post to ClickHouse's HTTP interface, with the gateway as their HTTP
// proxy. Out: the same bodies, one after the other, as one insert. A host is answered
// when the insert of its batch is: what it knows is what it would know without a
// gateway, and nothing is kept here that could be lost. All else passes as it is.
//
// It never looks into a body, never answers before the server does, and forwards to no
// server but those that it was given.
package gateway
