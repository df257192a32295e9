"""How models are fitted: one loop for gradient steps, EM, online EM and Gibbs sampling."""
