/**
 * The client for Node, with connections of its own: what `import "ingeborg-client"` gives there.
 */

import { Client as AnyClient } from "./client.js";
import { connect } from "./node-socket.js";

export * from "./errors.js";
export { checkClientId, checkTopic } from "./text.js";

export class Client extends AnyClient {
  /** @internal */
  static connectSocket = connect;
}
