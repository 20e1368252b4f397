// What an agent may do without asking, as a person says it in a form.

export interface Rules {
  otherwise: string; // what happens to all else: ask, allow or deny
  minutes: string; // after which an ask without an answer is denied
  allow: string; // commands, one a line
  deny: string;
  retype: string; // a person allows them by typing them again
}

interface Policy {
  default?: string;
  deadline_ms?: number;
  rule?: { verdict: string; command: string[]; retype?: boolean }[];
}

/** policyOf is the policy of a config; undefined if there are no rules. What is denied
 * stands first, because the first rule that matches decides. */
export function policyOf(r: Rules): Policy | undefined {
  const p: Policy = {};
  if (r.otherwise !== "ask") p.default = r.otherwise;
  if (Number(r.minutes) > 0) p.deadline_ms = Math.round(Number(r.minutes) * 60_000);
  const rule: Policy["rule"] = [];
  for (const [verdict, text, retype] of [["deny", r.deny, false], ["ask", r.retype, true], ["allow", r.allow, false]] as const) {
    const command = text.split("\n").map(l => l.trim()).filter(Boolean);
    if (command.length) rule.push({ verdict, command, ...(retype && { retype }) });
  }
  if (rule.length) p.rule = rule;
  return Object.keys(p).length ? p : undefined;
}

/** asToml is a policy as a file has it. */
export function asToml(p: Policy): string {
  let text = "";
  if (p.default) text += `default = ${JSON.stringify(p.default)}\n`;
  if (p.deadline_ms) text += `deadline = "${p.deadline_ms}ms"\n`;
  for (const r of p.rule ?? []) text += `[[rule]]\nverdict = "${r.verdict}"\ncommand = [${r.command.map(c => JSON.stringify(c)).join(", ")}]\n${r.retype ? "retype = true\n" : ""}`;
  return text;
}
