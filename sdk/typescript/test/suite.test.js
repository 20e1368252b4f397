// The suite of Go backends, and a little more, while connections are cut: all cases together have
// 500 cuts at least.
import "./suite/running.js";
import "./suite/finding.js";
import "./suite/python.js";
import "./suite/tools.js";
import "./suite/reading.js";
