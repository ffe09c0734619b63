# Compiler flags of our own code: warnings, and exact floating point.
function(engine_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -ffp-contract=off
    $<$<BOOL:${ENGINE_WERROR}>:-Werror>)
endfunction()
