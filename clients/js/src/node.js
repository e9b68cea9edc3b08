/**
 * The client for Node, with its own connections: `import "ingeborg-client"` leads here in Node.
 */

import { Client as AnyClient } from "./client.js";
import { connect } from "./node-socket.js";

export * from "./errors.js";
export { checkClientId, checkTopic } from "./text.js";

export class Client extends AnyClient {
  /** @internal */
  static connectSocket = connect;
}
