// A development server that takes its time to start.
const http = require('node:http');

console.log('compiling…');
setTimeout(() => {
  http.createServer((request, response) => {
    console.log(request.method, request.url);
    response.end(`Hello from the sandbox, ${request.url}\n`);
  }).listen(3000, () => console.log('ready on port 3000'));
}, 1000);
