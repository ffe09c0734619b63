# Compiler flags of our own code: warnings, and exact floating point.
function(engine_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -ffp-contract=off
    $<$<BOOL:${ENGINE_WERROR}>:-Werror>
    # GCC 12 reports members of an empty std::optional as perhaps uninitialised (GCC bug 80635).
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endfunction()
