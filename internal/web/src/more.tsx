// Screens that few people open, loaded when they are needed.
export { Doctor } from "./views/doctor.tsx";
export { NewRun } from "./views/new.tsx";
export { Settings } from "./views/settings.tsx";
