// Package config changes the configuration of running servers and has them read
// it anew, and sets what they let be set while they run; and puts both back.
//
// In: a cause.Change of kind config or setting. Out: the change made by the
// rules of change.Doer: a directive edited in the file it stands in, with
// everything else byte for byte as it was, checked by the server's own test, and
// taken over by a signal to its master; or one CONFIG SET or SET GLOBAL.
//
// It never restarts a server, never asks an init system, never writes to a file
// that somebody else has changed meanwhile, and has no server reload a
// configuration that holds other changes than its own.
package config
