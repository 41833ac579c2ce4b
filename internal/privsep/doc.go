// Package privsep has slowray act with the rights of another user, and no more:
// in a process of its own (privilege separation, as sshd(8) does it).
//
// In: a user, one of the tasks that this program has registered, its request, and
// open files. Out: the task's answer. The process is this program, started again:
// it gives up its user, groups, capabilities and capability bounding set, sets
// no_new_privs, cannot be traced by the user it acts as, checks all of that, and
// only then looks at the request.
//
// It never runs a task with more rights than asked for: where any of them cannot
// be given up it ends. What the user could have done to the answer is for the
// caller to judge.
package privsep
