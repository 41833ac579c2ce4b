package request

import (
	"github.com/slowray/slowray/internal/bpf"
)

// goRegisters are where Go's arguments and results, its stack pointer and its goroutine lie
// in struct pt_regs (cmd/compile/abi-internal.md).
var goRegisters = map[string]struct {
	args  [5]uint32
	sp, g uint32
}{
	"amd64": {[5]uint32{80, 40, 88, 112, 104}, 152, 8}, // AX, BX, CX, DI, SI; R14
	"arm64": {[5]uint32{0, 8, 16, 24, 32}, 31 * 8, 28 * 8},
}

// goVariables are what clear_go.h has to know of this machine.
func goVariables(arch string) map[string]any {
	r := goRegisters[arch]
	return map[string]any{bpf.ClearVarRegGo: r.args, bpf.ClearVarRegGoSp: r.sp, bpf.ClearVarRegG: r.g}
}
