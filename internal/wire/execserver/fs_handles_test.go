package execserver

import (
	"fmt"
	"testing"
)

func TestHandles(t *testing.T) {
	ft := newFileTest(t)
	ft.populate()
	for _, tt := range []struct{ method, params, want string }{
		{"open", `{"handleId":"h1","path":"$D/f"}`, `{"handleId":"h1"}`},
		{"open", `{"handleId":"h1","path":"$D/f"}`, "-32600 file handle `h1` already exists"},
		{"open", `{"handleId":"","path":"$D/f"}`, `{"handleId":""}`},
		{"open", `{"handleId":"123456789012345678901234567890123","path":"$D/f"}`, "-32600 file handle ID must not exceed 32 bytes"},
		{"open", `{"handleId":"h2","path":"$D"}`, "-32600 path `$P` is not a file"},
		{"open", `{"handleId":"h2","path":"$D/pipe"}`, "-32600 path `$P/pipe` is not a file"},
		{"open", `{"handleId":"h2","path":"$D/nope"}`, enoent},
		{"open", `{"handleId":"h2","path":"$D/f","mode":"bogus"}`, "-32602 unknown variant `bogus`, expected `read` or `replace`"},
		{"readBlock", `{"handleId":"h2","offset":0,"len":1}`, "-32004 unknown file handle `h2`"},
		{"readBlock", `{"handleId":"h1","offset":0,"len":2}`, `{"chunk":"aGk=","eof":false}`},
		{"readBlock", `{"handleId":"h1","offset":0,"len":3}`, `{"chunk":"aGkK","eof":false}`},
		{"readBlock", `{"handleId":"h1","offset":1,"len":4}`, `{"chunk":"aQo=","eof":true}`},
		{"readBlock", `{"handleId":"h1","offset":100,"len":4}`, `{"chunk":"","eof":true}`},
		{"readBlock", `{"handleId":"h1","offset":0,"len":0}`, "-32600 file read block length must be between 1 and 1048576"},
		{"readBlock", `{"handleId":"h1","offset":0,"len":1048577}`, "-32600 file read block length must be between 1 and 1048576"},
		{"writeBlock", `{"handleId":"h1","offset":0,"chunk":"aGk="}`, "-32603 Bad file descriptor (os error 9)"},
		{"readBlock", `{"handleId":"h1","offset":9223372036854775808,"len":4}`, "-32600 Invalid argument (os error 22)"},
		{"readBlock", `{"handleId":"h1","offset":0,"len":4}`, "-32004 unknown file handle `h1`"},
		{"open", `{"handleId":"w1","path":"$D/w","mode":"replace"}`, `{"handleId":"w1"}`},
		{"open", `{"handleId":"w2","path":"$D","mode":"replace"}`, eisdir},
		{"open", `{"handleId":"w2","path":"$D/pipe","mode":"replace"}`, "-32603 No such device or address (os error 6)"},
		{"open", `{"handleId":"w2","path":"file:///dev/null","mode":"replace"}`, "-32600 path `/dev/null` is not a file"},
		{"writeBlock", `{"handleId":"w1","offset":5,"chunk":"aGk="}`, `{}`},
		{"writeBlock", `{"handleId":"w1","offset":5,"chunk":""}`, "-32600 file write block length must be between 1 and 1048576"},
		{"writeBlock", `{"handleId":"w1","offset":5,"chunk":"!"}`, "-32602 Invalid symbol 33, offset 0."},
		{"writeBlock", `{"handleId":"w1","offset":9223372036854775808,"chunk":"aGk="}`, "-32600 file write range exceeds the signed 64-bit file offset limit"},
		{"writeBlock", `{"handleId":"nx","offset":5,"chunk":"aGk="}`, "-32004 unknown file handle `nx`"},
		{"readBlock", `{"handleId":"w1","offset":0,"len":4}`, "-32603 Bad file descriptor (os error 9)"},
		{"writeBlock", `{"handleId":"w1","offset":5,"chunk":"aGk="}`, "-32004 unknown file handle `w1`"},
		{"close", `{"handleId":"h1"}`, `{}`},
		{"close", `{"handleId":"h1"}`, `{}`},
		{"close", `{}`, "-32602 missing field `handleId`"},
	} {
		ft.want("fs/"+tt.method, tt.params, tt.want)
	}
	if got := ft.read("w"); got != "\x00\x00\x00\x00\x00hi" {
		t.Errorf("sparse write left %q", got)
	}
}

func TestHandleReadsAnUnlinkedFile(t *testing.T) {
	ft := newFileTest(t)
	ft.write("f", "hi")
	ft.want("fs/open", `{"handleId":"h","path":"$D/f"}`, `{"handleId":"h"}`)
	ft.remove("f")
	ft.want("fs/readBlock", `{"handleId":"h","offset":0,"len":9}`, `{"chunk":"aGk=","eof":true}`)
}

func TestHandleLimit(t *testing.T) {
	ft := newFileTest(t)
	ft.write("f", "hi")
	for i := range maxHandles {
		ft.want("fs/open", fmt.Sprintf(`{"handleId":"%d","path":"$D/f"}`, i), fmt.Sprintf(`{"handleId":"%d"}`, i))
	}
	const full = "-32600 at most 128 file handles may be open per connection"
	ft.want("fs/open", `{"handleId":"x","path":"$D/new","mode":"replace"}`, full)
	ft.want("fs/getMetadata", `{"path":"$D/new"}`, enoent)
	ft.want("fs/close", `{"handleId":"7"}`, `{}`)
	ft.want("fs/open", `{"handleId":"x","path":"$D/new","mode":"replace"}`, `{"handleId":"x"}`)
	ft.files.close()
	ft.want("fs/readBlock", `{"handleId":"x","offset":0,"len":1}`, "-32004 unknown file handle `x`")
	ft.want("fs/open", `{"handleId":"y","path":"$D/f"}`, "-32603 file already closed")
}

func TestHandlesConcurrently(t *testing.T) {
	ft := newFileTest(t)
	ft.write("f", "hi")
	done := make(chan struct{})
	for i := range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range 100 {
				id := fmt.Sprint(i % 3)
				ft.call("fs/open", `{"handleId":"`+id+`","path":"$D/f"}`)
				ft.call("fs/readBlock", `{"handleId":"`+id+`","offset":0,"len":9}`)
				ft.call("fs/close", `{"handleId":"`+id+`"}`)
			}
		}()
	}
	for range 8 {
		<-done
	}
	if n := len(ft.files.handles); n != 0 {
		t.Errorf("%d handles left", n)
	}
}
