// Walks through the operations of the generated REST client, @vercel/sdk, whose
// validation of answers is on, and prints the name of each that it was content
// with, and "unknown" with the place of each member that its schema lacks. What
// the client can't do (create, start a command) is asked for plainly.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'
import { gzipSync } from 'node:zlib'

const { API, TOKEN, TEAM, PROJECT, MODULES } = process.env
const load = name => import(pathToFileURL(createRequire(MODULES + '/').resolve(name)))
const { Vercel } = await load('@vercel/sdk')
const { HTTPClient } = await load('@vercel/sdk/lib/http.js')

// archive is a gzipped tar with one file.
function archive(name, text) {
  const header = Buffer.alloc(512)
  const octal = (n, at, size) => header.write(n.toString(8).padStart(size - 1, '0'), at)
  header.write(name)
  octal(0o644, 100, 8); octal(0, 108, 8); octal(0, 116, 8); octal(text.length, 124, 12); octal(0, 136, 12)
  header.write('        0', 148); header.write('ustar\x0000', 257)
  octal(header.reduce((sum, b) => sum + b, 0), 148, 7)
  return gzipSync(Buffer.concat([header, Buffer.from(text.padEnd(512, '\0')), Buffer.alloc(1024)]))
}

const http = new HTTPClient()
// The service answers 415 to a POST that does not say what its body is, which
// the client leaves out where there is none. For the upload it never has one:
// the operation takes no body to send, so that the archive is put in here.
http.addHook('beforeRequest', r => {
  if (new URL(r.url).pathname.endsWith('/fs/write')) {
    const headers = new Headers(r.headers)
    headers.set('content-type', 'application/gzip')
    return new Request(r, { headers, body: archive('dir/sent', 'sent\n') })
  }
  if (r.method === 'POST' && !r.headers.get('content-type')) {
    const named = new Request(r)
    named.headers.set('content-type', 'application/json')
    return named
  }
})
let answer
http.addHook('response', async r => {
  answer = r.headers.get('content-type')?.startsWith('application/json') ? await r.clone().json() : undefined
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

// unknown tells the members of an answer that the client has dropped, which are
// those that its schema does not have.
function unknown(answer, read, at) {
  if (Array.isArray(answer)) answer.forEach((a, i) => unknown(a, read[i], `${at}[]`))
  else if (answer && typeof answer === 'object' && read && typeof read === 'object') {
    for (const [key, value] of Object.entries(answer)) {
      if (key in read) unknown(value, read[key], `${at}.${key}`)
      else console.log(`unknown ${at}.${key}`)
    }
  }
}

async function step(op, request) {
  try {
    const result = await sandboxes[op]({ teamId: TEAM, ...request })
    console.log(op)
    unknown(answer, result, op)
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
// What the command writes is looked for after it is killed.
for (let tries = 0; tries < 600; tries++) {
  const r = await fetch(`${API}/v2/sandboxes/sessions/${sessionId}/fs/read?teamId=${TEAM}`, {
    method: 'POST', body: JSON.stringify({ path: 'dir/file' }),
    headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' },
  })
  if (await r.text() === 'text\n') break
  await new Promise(wake => setTimeout(wake, 100))
}
await step('killSessionCommand', { sessionId, cmdId: cmd.id, requestBody: { signal: 9 } })
await step('getSessionCommand', { sessionId, cmdId: cmd.id, wait: 'true' })
const written = await step('writeSessionFiles', { sessionId })
if (JSON.stringify(written) !== '{}') throw new Error(`the upload is answered by ${JSON.stringify(written)}`)
const sent = await step('readSessionFile', { sessionId, requestBody: { path: 'dir/sent' } })
if (await new Response(sent).text() !== 'sent\n') throw new Error('the file that was sent has other contents')
const file = await step('readSessionFile', { sessionId, requestBody: { path: 'dir/file' } })
if (await new Response(file).text() !== 'text\n') throw new Error('the file has other contents')
await step('extendSessionTimeout', { sessionId, requestBody: { duration: 60000 } })
await step('updateSessionNetworkPolicy', { sessionId, requestBody: { mode: 'deny-all' } })
await step('getSession', { sessionId })
await step('stopSession', { sessionId })
await step('stopSession', { sessionId })
const fleeting = await create({ name: 'fleeting', persistent: false })
await step('stopSession', { sessionId: fleeting.session.id })
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
