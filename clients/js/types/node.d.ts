/**
 * The client for Node, with connections of its own: what `import "ingeborg-client"` gives there.
 */
import { Client as AnyClient } from "./client.js";
export * from "./errors.js";
export { checkClientId, checkTopic } from "./text.js";
export declare class Client extends AnyClient {
}
