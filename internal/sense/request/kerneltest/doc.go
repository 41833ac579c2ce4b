// Package kerneltest asks whether the recorder of requests does its work on
// the kernel that runs it.
//
// In: the running kernel, and requests that the tests make over loopback at
// known times. Out: test results. It measures no accuracy, which the tests of
// package request do against packets: times only have to be possible, because
// script/kernels.sh runs these tests in emulated machines.
package kerneltest
