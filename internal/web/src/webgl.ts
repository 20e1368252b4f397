// The part of the console that draws terminals with WebGL, loaded only for who chose it.
export { WebglAddon } from "@xterm/addon-webgl";
