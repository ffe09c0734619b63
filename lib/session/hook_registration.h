// The identity of a writing hook: equal registrations change equal values in the same way.
#ifndef ENGINE_LIB_SESSION_HOOK_REGISTRATION_H_
#define ENGINE_LIB_SESSION_HOOK_REGISTRATION_H_

#include "lib/session/hook_select.h"
#include "lib/session/hooks.h"
#include "lib/session/token_history.h"

namespace engine {

// Of a declared writer: over its action, sites, positions, heads, numbers and values. Neither kNoWriters nor
// kOpaqueWriters. May throw std::bad_alloc.
WriterSet registration_hash(const HookSpec& spec, const SiteSelection& sites);

// The set of `before` and one more hook.
WriterSet add_writer(WriterSet before, WriterSet registration);

}  // namespace engine

#endif  // ENGINE_LIB_SESSION_HOOK_REGISTRATION_H_
