// Who is asking: what the token, or loopback, may see.

import type { Session } from "./types";

export const session = $state<{ value: Session | null }>({ value: null });
