// Screens and views that are loaded when they are needed: the list of runs, the inbox and
// logs are not among them.
export { Cells } from "./views/cells.tsx";
export { Conversation } from "./views/conversation.tsx";
export { Doctor } from "./views/doctor.tsx";
export { Events } from "./views/events.tsx";
export { Export } from "./views/export.tsx";
export { Facts } from "./views/facts.tsx";
export { NewRun } from "./views/new.tsx";
export { Scrubber } from "./views/scrubber.tsx";
export { Settings } from "./views/settings.tsx";
export { Share } from "./views/share.tsx";
export { Terminal } from "./views/terminal.tsx";
export { openFile, Tree } from "./views/tree.tsx";
