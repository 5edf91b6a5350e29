// Walks through the operations of the generated REST client, @vercel/sdk, whose
// validation of answers is on, and prints the name of each that it was content
// with. What the client can't do (create, start a command) is asked for plainly.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const { API, TOKEN, TEAM, PROJECT, MODULES } = process.env
const load = name => import(pathToFileURL(createRequire(MODULES + '/').resolve(name)))
const { Vercel } = await load('@vercel/sdk')
const { HTTPClient } = await load('@vercel/sdk/lib/http.js')

const http = new HTTPClient()
// The service answers 415 to a POST that does not say what its body is, which
// the client leaves out where there is none.
http.addHook('beforeRequest', r => {
  if (r.method === 'POST' && !r.headers.get('content-type')) {
    const named = new Request(r)
    named.headers.set('content-type', 'application/json')
    return named
  }
})
const { sandboxes } = new Vercel({ bearerToken: TOKEN, serverURL: API, httpClient: http })

async function plain(method, path, body) {
  const r = await fetch(`${API}${path}?teamId=${TEAM}&projectId=${PROJECT}`, {
    method, body: JSON.stringify(body),
    headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' },
  })
  if (!r.ok) throw new Error(`${method} ${path}: ${r.status} ${await r.text()}`)
  return r.json()
}
const create = body => plain('POST', '/v3/sandboxes', { projectId: PROJECT, ...body })

async function step(op, request) {
  try {
    const result = await sandboxes[op]({ teamId: TEAM, ...request })
    console.log(op)
    return result
  } catch (e) {
    throw new Error(`${op}: ${e.message} ${JSON.stringify(e.rawValue ?? e.body ?? '')} ${e.cause ?? ''}`)
  }
}

const projectId = PROJECT, project = PROJECT, name = 'one'
const drive = await step('getOrCreateDrive', { name: 'data', requestBody: { projectId } })
if (!(drive.drive ?? drive).id) throw new Error('the drive has no ID')
await step('getOrCreateDrive', { name: 'data', requestBody: { projectId } })
const made = await create({
  name, ports: [3000], tags: { a: 'b' }, networkPolicy: { allow: { 'a.com': [{ transform: [{ headers: { k: 'v' } }] }] } },
  snapshotExpiration: 86400000, keepLastSnapshots: { count: 2 }, mounts: { '/data': { drive: 'data', mode: 'read-write' } },
})
let sessionId = made.session.id
await step('listDrives', { projectId, sortBy: 'name', namePrefix: 'd' })
await step('getNamedSandbox', { name, projectId })
await step('listNamedSandboxes', { project, tags: 'a:b', status: 'running' })
await step('listSessions', { project, name })
await step('getSession', { sessionId })
await step('createSessionDirectory', { sessionId, requestBody: { path: 'dir' } })
const cmd = (await plain('POST', `/v2/sandboxes/sessions/${sessionId}/cmd`, { command: 'sh', args: ['-c', 'echo text > dir/file; sleep 1000'] })).command
await step('listSessionCommands', { sessionId })
await step('killSessionCommand', { sessionId, cmdId: cmd.id, requestBody: { signal: 9 } })
await step('getSessionCommand', { sessionId, cmdId: cmd.id, wait: 'true' })
const file = await step('readSessionFile', { sessionId, requestBody: { path: 'dir/file' } })
if (await new Response(file).text() !== 'text\n') throw new Error('the file has other contents')
await step('extendSessionTimeout', { sessionId, requestBody: { duration: 60000 } })
await step('updateSessionNetworkPolicy', { sessionId, requestBody: { mode: 'deny-all' } })
await step('getSession', { sessionId })
await step('stopSession', { sessionId })
await step('stopSession', { sessionId })
await step('getNamedSandbox', { name, projectId })
for (const version of ['V2', 'V3']) {
  sessionId = (await step('getNamedSandbox', { name, projectId, resume: true })).session.id
  const { snapshot } = await step('createSandboxesSessionsBySessionIdSnapshot' + version, { sessionId, requestBody: {} })
  await step('getSessionSnapshot', { snapshotId: snapshot.id })
  if (version === 'V3') await step('deleteSessionSnapshot', { snapshotId: snapshot.id })
}
await step('listSessionSnapshots', { project, name })
await step('listNamedSandboxes', { project })
await step('deleteSandbox', { name, projectId, deleteOrphanSnapshots: true })
await step('deleteDrive', { name: 'data', projectId })
