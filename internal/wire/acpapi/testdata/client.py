"""A client made of the protocol's SDK for Python: it begins a session, prompts, allows
what it is asked, and loads the session in another connection. It prints what it saw."""

import asyncio
import json
import os

import acp
from acp import schema

test = json.loads(os.environ["SPOOL_TEST_ACP"])
# A server that only leaves what it was given.
probe = schema.McpServerStdio(
    name="a probe",
    command="/bin/sh",
    args=["-c", 'echo "$0 $PROBE" >probe.txt', '"x"'],
    env=[schema.EnvVariable(name="PROBE", value="secret")],
)
report = {"asked": [], "live": [], "loaded": [], "said": ""}


class Client:
    def __init__(self, updates):
        self.updates = updates
        self.more = asyncio.Condition()

    async def request_permission(self, session_id, tool_call, options, **kwargs):
        report["asked"].append(tool_call.kind)
        option = next(o for o in options if o.kind == "allow_once")
        outcome = schema.AllowedOutcome(outcome="selected", option_id=option.option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def session_update(self, session_id, update, **kwargs):
        async with self.more:
            self.updates.append(update.session_update)
            if update.session_update == "agent_message_chunk":
                report["said"] += update.content.text
            self.more.notify_all()

    def on_connect(self, conn):
        pass


def connect(client):
    return acp.spawn_agent_process(client, test["program"], *test["args"], env=dict(os.environ), cwd=test["cwd"])


async def main():
    client = Client(report["live"])
    async with connect(client) as (conn, _):
        info = await conn.initialize(acp.PROTOCOL_VERSION, client_info=schema.Implementation(name="journey", version="1"))
        report["agent"] = info.agent_info.title
        session = (await conn.new_session(cwd=test["cwd"], mcp_servers=[probe])).session_id
        done = await conn.prompt(session_id=session, prompt=[acp.text_block("Go.")])
        report["stop"] = done.stop_reason
    client = Client(report["loaded"])
    async with connect(client) as (conn, _):
        await conn.initialize(acp.PROTOCOL_VERSION)
        report["listed"] = [s.title for s in (await conn.list_sessions(cwd=test["cwd"])).sessions]
        await conn.load_session(cwd=test["cwd"], session_id=session, mcp_servers=[])
        async with client.more:  # updates have tasks of their own
            await asyncio.wait_for(client.more.wait_for(lambda: len(client.updates) > len(report["live"])), 60)
        await conn.close_session(session_id=session)
    print(json.dumps(report))


asyncio.run(main())
