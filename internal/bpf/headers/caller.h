/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Where the innermost function of a thread in user space returns to, as long as
 * it has not put that elsewhere: a call leaves it in a register (arm64) or on top
 * of the stack (x86-64). A function that calls no other may leave it there, and
 * others do until they have a frame: the kernel, which goes by frame pointers,
 * then misses their caller. Whether it is still there, user space finds in the
 * tables of the binary.
 */
#ifndef SLOWRAY_CALLER_H
#define SLOWRAY_CALLER_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs___caller_x86 {
	unsigned long sp;
	unsigned long orig_ax;
};

struct pt_regs___caller_arm64 {
	__u64 regs[31];
	__s32 syscallno;
};

#pragma clang attribute pop

#define LINK 30 /* x30: Procedure Call Standard for the Arm 64-bit Architecture, 6.1.1 */

/* Of the current thread, which is none of the kernel; 0 where it is not to be had. */
static __always_inline __u64 left_by_call(void)
{
	struct pt_regs *regs;
	__u64 at = 0;

	if (!bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return 0; /* before 5.15 */
	regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	if (bpf_core_field_exists(((struct pt_regs___caller_x86 *)regs)->orig_ax))
		bpf_probe_read_user(&at, sizeof(at), (void *)BPF_CORE_READ((struct pt_regs___caller_x86 *)regs, sp));
	else if (bpf_core_field_exists(((struct pt_regs___caller_arm64 *)regs)->syscallno))
		at = BPF_CORE_READ((struct pt_regs___caller_arm64 *)regs, regs[LINK]);
	return at;
}

#endif
