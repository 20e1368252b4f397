package wasipy

var neededHere []uint32
