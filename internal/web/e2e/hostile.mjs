// What must never do anything: texts that runs may print.

const esc = "\x1b";
const bel = "\x07";
const js = "alert(document.domain)";

/** payloads are texts that runs may print; each ends where a line does. */
export const payloads = [
  // Markup.
  `<script>${js}</script>`, `<img src=x onerror=${js}>`, `<svg onload=${js}>`, `<svg><script>${js}</script></svg>`, `<iframe src="javascript:${js}">`, `<iframe srcdoc="<script>parent.${js}</script>">`,
  `<body onload=${js}>`, `<input autofocus onfocus=${js}>`, `<details open ontoggle=${js}>`, `<video><source onerror=${js}></video>`, `<audio src=x onerror=${js}>`, `<object data="javascript:${js}">`,
  `<embed src="javascript:${js}">`, `<math><mtext><mglyph><style><img src=x onerror=${js}>`, `<form action="https://evil.test"><button>go</button></form>`, `<a href="javascript:${js}">x</a>`,
  `<base href="https://evil.test/">`, `<meta http-equiv=refresh content="0;url=https://evil.test">`, `<link rel=stylesheet href="https://evil.test/x.css">`, `<style>@import "https://evil.test/x.css"</style>`,
  `<div style="background:url(https://evil.test/p.png)">`, `<marquee onstart=${js}>`, `<template><script>${js}</script></template>`, `</pre></script><b>bold`, `"><script>${js}</script>`, `' onmouseover='${js}`, `<!--><script>${js}</script>-->`, `<![CDATA[<script>${js}</script>]]>`,
  `&lt;script&gt;${js}&lt;/script&gt;`, `&#60;script&#62;`, `\u003cscript\u003e${js}`, `<scr\0ipt>${js}</script>`, `<IMG SRC=JaVaScRiPt:${js}>`, `<a href="data:text/html,<script>${js}</script>">x</a>`,
  // Templates and expressions.
  "{{constructor.constructor('alert(1)')()}}", "${alert(1)}", "<%= alert(1) %>", "#{alert(1)}", "__proto__", '{"__proto__":{"polluted":true}}', "[[constructor]]",
  // Links.
  "javascript:alert(1)", "vbscript:msgbox(1)", "data:text/html,<script>alert(1)</script>", "https://evil.test/%00", "http://user:password@evil.test/", "https://evil.test\\@good.test", "file:///etc/passwd", "//evil.test/x", "blob:https://evil.test/1",
  "mailto:a@evil.test?body=<script>", "https://xn--80ak6aa92e.com/",
  // Markdown.
  "[x](javascript:alert(1))", "![x](https://evil.test/p.png)", "[x]: javascript:alert(1)", "![x](data:image/svg+xml,<svg onload=alert(1)>)", "<https://evil.test>", "[a](<javascript:alert(1)>)", "`<script>alert(1)</script>`", "|a|b|\n|-|-|\n|<img src=x onerror=alert(1)>|x|",
  // Sequences for terminals.
  `${esc}]0;<script>title</script>${bel}x`, `${esc}]2;title${esc}\\x`, `${esc}]52;c;aGFja2Vk${bel}x`, `${esc}]52;c;?${bel}x`, `${esc}]8;;javascript:alert(1)${esc}\\link${esc}]8;;${esc}\\`, `${esc}]8;;https://evil.test${esc}\\link${esc}]8;;${esc}\\`,
  `${esc}]1337;File=inline=1:AAAA${bel}x`, `${esc}]7;file://evil.test/etc${bel}x`, `${esc}]9;4;1;50${bel}x`, `${esc}P$q"p${esc}\\x`, `${esc}[6n`, `${esc}[c`, `${esc}[>c`, `${esc}[21t`, `${esc}[8;999;999t`, `${esc}[38;2;999;999;999mcolour`, `${esc}[`, `${esc}]`, `${esc}P`,
  `${esc}[999999999C.`, `${esc}[?1049h${esc}[?1049l`, `${esc}[?25l${esc}[?25h`, `${esc}(0lqk${esc}(B`,
  // Characters.
  "\u202ereversed\u202c", "\u2066isolated", "\u200b\u200c\u200d\ufeffzero", "\0\x01\x02nul", "Z\u0351\u036b\u0343\u032a\u0302\u034e".repeat(20), "\ud83d\udc68\u200d\ud83d\udc69\u200d\ud83d\udc67", "\ufdfd".repeat(50), "\u0e49".repeat(200), "\u2028\u2029separators",
  // Sizes and shapes.
  "[".repeat(5000), "{\"a\":".repeat(2000), "<div>".repeat(3000), JSON.stringify({ big: "x".repeat(20_000) }), "\t".repeat(2000), "https://" + "a".repeat(5000) + ".test/", "a ".repeat(5000), `${esc}[31m`.repeat(2000) + "red",
];

/** bytes are all payloads, with some that are no text, as base64. */
export const bytes = Buffer.concat([Buffer.from(payloads.join("\n") + "\n"), Buffer.from([0xff, 0xfe, 0xc3, 0x28, 0xf0, 0x9f, 0x92, 0x0a, 0xed, 0xa0, 0x80, 0x0a])]).toString("base64");
