#include "textflag.h"

// func Raw(trap, a1, a2, a5, a6 uintptr) (r1, err uintptr)
//
// The return address is in the link register, which the child does not share.
TEXT ·Raw(SB),NOSPLIT,$0-56
	MOVD	a1+8(FP), R0
	MOVD	a2+16(FP), R1
	MOVD	$0, R2
	MOVD	$0, R3
	MOVD	a5+24(FP), R4
	MOVD	a6+32(FP), R5
	MOVD	trap+0(FP), R8
	SVC
	CMN	$4095, R0
	BCC	ok
	MOVD	$-1, R4
	MOVD	R4, r1+40(FP)
	NEG	R0, R0
	MOVD	R0, err+48(FP)
	RET
ok:
	MOVD	R0, r1+40(FP)
	MOVD	ZR, err+48(FP)
	RET
