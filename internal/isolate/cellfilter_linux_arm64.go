package isolate

var cellRefusedHere []uint32
