// Package server sets up the servers of an incident in a sandbox, as people
// have them: nginx with its two workers, php-fpm with its children, access and
// error logs on, configuration in files; MariaDB in a network namespace of its
// own; and HTTP servers of the lab's own that misbehave as asked.
//
// In: a [Setup], which holds every value an incident may vary, and a [Plan]
// of addresses and ports. Out: a running [Stack]. It does not know which
// values are faults.
package server
