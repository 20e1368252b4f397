#include "textflag.h"

// func Raw(trap, a1, a2, a5, a6 uintptr) (r1, err uintptr)
//
// The child runs on the stack of its parent, so the return address is kept in a
// register meanwhile.
TEXT ·Raw(SB),NOSPLIT|NOFRAME,$0-56
	MOVQ	a1+8(FP), DI
	MOVQ	a2+16(FP), SI
	MOVQ	$0, DX
	MOVQ	$0, R10
	MOVQ	a5+24(FP), R8
	MOVQ	a6+32(FP), R9
	MOVQ	trap+0(FP), AX
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	CMPQ	AX, $0xfffffffffffff001
	JLS	ok
	MOVQ	$-1, r1+40(FP)
	NEGQ	AX
	MOVQ	AX, err+48(FP)
	RET
ok:
	MOVQ	AX, r1+40(FP)
	MOVQ	$0, err+48(FP)
	RET
