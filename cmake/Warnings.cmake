# Compiler flags of our own code: warnings, and exact floating point.
function(engine_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -ffp-contract=off
    $<$<BOOL:${ENGINE_WERROR}>:-Werror>
    # False positives of GCC 12: members of an empty std::optional (GCC bug 80635), std::string + literal (105329).
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-restrict>)
endfunction()
