#include "textflag.h"

// func rawVfork(trap, a1, a2 uintptr) (r1, err uintptr)
//
// The child runs on the stack of its parent, so the return address is kept in a
// register meanwhile.
TEXT ·rawVfork(SB),NOSPLIT|NOFRAME,$0-40
	MOVQ	a1+8(FP), DI
	MOVQ	a2+16(FP), SI
	MOVQ	$0, DX
	MOVQ	$0, R10
	MOVQ	$0, R8
	MOVQ	$0, R9
	MOVQ	trap+0(FP), AX
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	CMPQ	AX, $0xfffffffffffff001
	JLS	ok
	MOVQ	$-1, r1+24(FP)
	NEGQ	AX
	MOVQ	AX, err+32(FP)
	RET
ok:
	MOVQ	AX, r1+24(FP)
	MOVQ	$0, err+32(FP)
	RET
