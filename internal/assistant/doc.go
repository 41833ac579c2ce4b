// Package assistant answers programs that ask why a service is slow: it is an MCP
// server (Model Context Protocol, 2025-11-25) of a few tools that only read.
//
// In: questions as tools, with a limit of tokens. Out: JSON that fits the limit, says how
// much was left out of which list, and gives every figure with its unit. Live answers
// come from slowray's own commands, run as children with a fixed list of flags, those of
// the past from the answers of the page (docs/api.md). It never changes the host:
// no question leads to prove --apply, and none names a file or an address to connect to.
package assistant
