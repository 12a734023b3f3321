// A readable page made of the server's OpenAPI document; nothing comes from elsewhere.
import { getJson } from "./api.js";

const make = (tag, text = "", name = "") => {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = name;
  return element;
};

function schemaName(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(schemaName).join(" or ");
  if (schema.type === "array") return `list of ${schemaName(schema.items) || "values"}`;
  return schema.format ? `${schema.type} (${schema.format})` : schema.type ?? "";
}

function fields(title, rows) {
  if (!rows.length) return [];
  const table = make("table");
  for (const [name, kind, text] of rows) {
    const row = make("tr");
    row.append(make("td", name), make("td", kind), make("td", text ?? ""));
    table.append(row);
  }
  return [make("h3", title), table];
}

function curl(method, path, operation) {
  const address = `${location.origin}${path}`;
  const content = Object.keys(operation.requestBody?.content ?? {})[0];
  if (!content) return method === "get" ? `curl ${address}` : `curl -X ${method.toUpperCase()} ${address}`;
  if (content === "multipart/form-data") return `curl -F source=@cat.png -F target=@lynx.png -F 'points=[[54, 48]]' ${address}`;
  if (content === "application/json") return `curl -b jar -c jar -H 'Content-Type: application/json' -d '{…}' ${address}`;
  return `curl -b jar -c jar --data-binary @cat.png ${address}`;
}

function card(method, path, operation, schemas) {
  const box = make("section", "", "panel api");
  box.append(make("h2", `${method.toUpperCase()} ${path}`), make("p", operation.summary ?? ""), make("p", operation.description ?? "", "hint"));
  box.append(...fields("Asks for", (operation.parameters ?? []).filter((each) => each.in !== "cookie").map((each) => [each.name, schemaName(each.schema), each.description])));
  for (const [kind, content] of Object.entries(operation.requestBody?.content ?? {})) {
    const schema = content.schema?.$ref ? schemas[schemaName(content.schema)] : content.schema;
    box.append(...fields(`Body: ${kind}`, Object.entries(schema?.properties ?? {}).map(([name, each]) => [name, schemaName(each), each.description])));
  }
  const [status, answer] = Object.entries(operation.responses).find(([code]) => code.startsWith("2")) ?? [];
  for (const [kind, content] of Object.entries(answer?.content ?? {})) {
    const item = content.schema?.items?.$ref ? content.schema.items : content.schema;
    const schema = item?.$ref ? schemas[schemaName(item)] : item;
    box.append(...fields(`Answers ${status}: ${kind} ${schemaName(content.schema)}`, Object.entries(schema?.properties ?? {}).map(([name, each]) => [name, schemaName(each), each.description])));
  }
  box.append(make("pre", curl(method, path, operation)));
  return box;
}

const description = await getJson("/api/openapi.json");
const main = document.getElementById("paths");
main.append(...description.info.description.split("\n\n").slice(1).map((text) => make("p", text.replaceAll("`", ""))));
for (const [path, methods] of Object.entries(description.paths)) {
  for (const [method, operation] of Object.entries(methods)) main.append(card(method, path, operation, description.components.schemas));
}
