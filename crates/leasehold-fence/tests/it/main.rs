//! The fence from outside: real commands, and every way in which what watches them can die.

#[cfg(test)]
mod processes;
#[cfg(test)]
mod real_process;
#[cfg(test)]
mod yard;
