// Makes calls by the official TypeScript client of the Model Context Protocol:
// each line of standard input is one, and its result a line of standard output.
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const client = new Client({ name: "test", version: "1" });
const transport = new StreamableHTTPClientTransport(new URL(process.argv[2]));
await client.connect(transport);
const { tools } = await client.listTools();
for await (const line of createInterface({ input: process.stdin })) {
  const { name, arguments: args } = JSON.parse(line);
  if (!tools.some((tool) => tool.name === name)) throw new Error(`no tool ${name}`);
  console.log(JSON.stringify(await client.callTool({ name, arguments: args })));
}
await transport.terminateSession();
await client.close();
