// One script, one style sheet and the shell, which links them with their content hash: `build.js` compresses them into the program.
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

const server = process.env.MELTEMI_SERVER ?? "http://127.0.0.1:15014";

export default defineConfig({
  base: "/console/",
  plugins: [svelte()],
  server: { proxy: { "/console/api": server, "/debug": server, "/metrics": server } },
  build: {
    target: "es2022",
    cssCodeSplit: false,
    modulePreload: false,
    assetsInlineLimit: 0,
    rolldownOptions: {
      output: {
        codeSplitting: false,
        entryFileNames: "console.js",
        assetFileNames: "console[extname]",
      },
    },
  },
});
