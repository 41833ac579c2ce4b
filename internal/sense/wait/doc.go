// Package wait follows what the threads of a process wait for: who holds the
// lock, who does not read the pipe, who does not answer on the connection, and
// what that one waits for itself, to the last hop.
//
// In: /proc of the processes on the way (state, system call with its arguments,
// kernel function, open files, /proc/locks), sock_diag for the other ends of
// sockets, and process memory, of which a lock's owner and the descriptors of
// poll and select are read with process_vm_readv(2). Nothing is loaded into the
// kernel, and no process is stopped, attached to or changed.
//
// Out: observe.Waits. Every hop says how it is known. An owner that is not sure
// is not named.
//
// decode.go tells what a thread waits for from its system call; a file each for
// futex, pipe, unix, tcp, udp, poll, file locks, children and uninterruptible
// sleep finds who could end that wait; follow.go walks from there to there;
// look.go takes the two looks and puts the chains together.
//
// A Sampler does the same over a window, for the processes of the services:
// sampler.go looks again and again, watched.go keeps how long each thread waits,
// shape.go follows those that are held up and sorts their chains by shape, and
// passon.go passes the time of slow requests on to them: observe.WaitGraph.
//
// Bounds, so that no host makes it slow: 2,048 threads of one process and
// 16,384 of all, 8,192 processes and 400,000 open files, 64 hops, 4 branches.
// What lies beyond is reported in Waits.Unseen.
package wait
