// Talking Stick: tells the local daemon what each session of OpenCode is doing, and hands the messages that wait for it to its
// model. It sends nothing over a network, and stays silent when anything fails.
import { spawn } from "node:child_process"

const TT = "@TT@"

// The parent of every session of a subagent, and the last status of every session.
const parents = new Map()
const statuses = new Map()
// The tools that change files.
const guarded = new Set(["edit", "write", "multiedit", "patch", "apply_patch"])
// Sessions whose next prompt is ours.
const prompted = new Set()
let current
// A run without a terminal ends with its turn, whatever is asked of it then.
const ends = process.argv.slice(2).includes("run")

function root(id) {
  let at = id
  for (let depth = 0; depth < 16 && parents.get(at); depth++) at = parents.get(at)
  return at
}

// Reports what happened. With `speak` or `guard`, resolves to what there is to say to the model, or why a tool is not to run.
function report(event, id, details = {}, speak = false, guard = false) {
  return new Promise((resolve) => {
    try {
      if (!id) return resolve()
      const session = root(id)
      const input = { session_id: session, at: new Date().toISOString(), cwd: process.cwd(), ...details }
      if (session !== id) input.agent_id = id
      else if (current && current !== session && event !== "session_ended") input.previous_session_id = current
      if (session === id && event !== "session_ended") current = session
      // What is said in a subagent does not reach the conversation.
      speak = speak && session === id
      if (speak) input.can_speak = true
      if (guard) input.can_refuse = true
      const waits = speak || guard
      const output = waits ? "pipe" : "ignore"
      const child = spawn(TT, ["hook", "--harness", "opencode", event], { stdio: ["pipe", output, "ignore"] })
      let said = ""
      child.on("error", () => resolve())
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify(input))
      if (!waits) {
        child.unref()
        return resolve()
      }
      child.stdout.setEncoding("utf8")
      child.stdout.on("error", () => {})
      child.stdout.on("data", (text) => {
        said += text
      })
      child.on("close", () => {
        try {
          resolve(said ? JSON.parse(said) : undefined)
        } catch {
          resolve()
        }
      })
    } catch {
      resolve()
    }
  })
}

async function note(client, { type, properties }) {
  const id = properties?.sessionID ?? properties?.info?.id
  switch (type) {
    case "session.created":
    case "session.updated":
      if (properties.info?.parentID) parents.set(properties.info.id, properties.info.parentID)
      // A second conversation in the same process takes the place of the first.
      else if (type === "session.created") report("session_started", id, { source: current ? "new" : "startup" })
      return
    case "session.status": {
      const status = properties.status?.type === "idle" ? "idle" : "busy"
      if (statuses.get(id) === status) return
      statuses.set(id, status)
      // The end of a turn has an event of its own.
      if (status === "busy") report("busy", id)
      return
    }
    case "session.idle": {
      statuses.set(id, "idle")
      if (parents.has(id)) return report("subagent_ended", id)
      const said = await report("turn_ended", id, {}, !ends)
      if (!said?.holds) return
      prompted.add(id)
      await client.session.promptAsync({ path: { id }, body: { parts: [{ type: "text", text: said.text, synthetic: true }] } })
      return
    }
    case "session.error":
      if (properties.error?.name === "MessageAbortedError") report("interrupted", id)
      return
    case "permission.asked":
      return report("permission_asked", id, { tool_name: properties.permission ?? properties.type })
    case "question.asked":
      return report("permission_asked", id)
    case "permission.replied":
    case "question.replied":
    case "question.rejected":
      return report("permission_answered", id)
    case "session.deleted":
      report("session_ended", id, { reason: "deleted" })
      parents.delete(id)
      statuses.delete(id)
      prompted.delete(id)
  }
}

export const TalkingStick = async ({ client }) => ({
  event: async ({ event }) => {
    try {
      await note(client, event)
    } catch {}
  },
  "chat.message": async (input, output) => {
    try {
      if (parents.has(input.sessionID) || prompted.delete(input.sessionID)) return
      const said = await report("prompt", input.sessionID, {}, true)
      if (!said) return
      // A part has the ids of the others.
      const { id: _, ...like } = output.parts.find((part) => part.type === "text") ?? {
        sessionID: input.sessionID,
        messageID: output.message.id,
      }
      output.parts.push({ ...like, id: `prt_${Date.now().toString(16)}talkingstick`, type: "text", text: `\n\n${said.text}`, synthetic: true })
    } catch {}
  },
  "tool.execute.before": async (input, output) => {
    const details = { tool_name: input.tool, tool_use_id: input.callID }
    if (!guarded.has(input.tool)) return void report("tool_started", input.sessionID, details)
    // What there is to say besides a refusal comes with the answer of the tool.
    const answer = await report("tool_started", input.sessionID, { ...details, tool_input: output?.args }, false, true)
    if (answer?.refusal) throw new Error(answer.refusal)
  },
  "tool.execute.after": async (input, output) => {
    try {
      // Not every tool has an output that is a text.
      const speak = typeof output?.output === "string"
      const said = await report("tool_ended", input.sessionID, { tool_name: input.tool, tool_use_id: input.callID }, speak)
      if (said) output.output += `\n\n${said.text}`
    } catch {}
  },
})
