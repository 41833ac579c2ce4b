// Package guest injects faults that want a kernel of their own: netem, and
// control groups of version 2. Its tests run in the machines that
// script/kernels.sh boots, and skip loudly elsewhere.
//
// In: the program under test (-slowray), a kernel that nobody else uses. Out:
// test results: the fault is found first. The machines are emulated and so slow
// that a service without a fault has slow requests, too: healthy ones are injected
// on real machines only (lab/incident).
package guest
