// A real OpenID Connect provider for tests: `node oidc_provider.mjs MODULES_FOLDER PORT [ADDRESS OF A PORTAL]`. Whoever logs in
// is who they say.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [folder, port, portal] = process.argv.slice(2);
const found = createRequire(`${folder}/package.json`).resolve('oidc-provider');
const { default: Provider } = await import(pathToFileURL(found));
const issuer = `http://127.0.0.1:${port}`;

const provider = new Provider(issuer, {
  clients: [{
    client_id: 'muster',
    token_endpoint_auth_method: 'none',
    grant_types: ['urn:ietf:params:oauth:grant-type:device_code', ...(portal ? ['authorization_code'] : [])],
    response_types: portal ? ['code'] : [],
    redirect_uris: portal ? [`${portal}/portal/sso/back`] : [],
  }, {
    client_id: 'another',
    token_endpoint_auth_method: 'none',
    grant_types: ['urn:ietf:params:oauth:grant-type:device_code'],
    response_types: [],
    redirect_uris: [],
  }],
  claims: { openid: ['sub'], email: ['email', 'email_verified'] },
  conformIdTokenClaims: false,
  cookies: { keys: ['tests'] },
  features: { deviceFlow: { enabled: true }, devInteractions: { enabled: true } },
  findAccount: async (_, id) => ({
    accountId: id,
    claims: async () => ({ sub: id, email: id, email_verified: !id.startsWith('unverified') }),
  }),
});
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
